// Activations: their value, and a gradient on its way back, as a function of that; comes after reduce.cuh.
#pragma once

struct Identity {
  template <class A> static EVERYWHERE A of(A x) { return x; }
  template <class A> static EVERYWHERE A grad(A, A d) { return d; }
};
struct Relu {
  template <class A> static EVERYWHERE A of(A x) { return x <= (A)0 ? (A)0 : x; }
  template <class A> static EVERYWHERE A grad(A y, A d) { return y <= (A)0 ? (A)0 : d; }
};
struct Sigmoid {  // by tanh, which cannot overflow
  template <class A> static EVERYWHERE A of(A x) { return (A)0.5 * tanh((A)0.5 * x) + (A)0.5; }
  template <class A> static EVERYWHERE A grad(A y, A d) { return d * (((A)1 - y) * y); }
};
struct Tanh {
  template <class A> static EVERYWHERE A of(A x) { return tanh(x); }
  template <class A> static EVERYWHERE A grad(A y, A d) { return d * ((A)1 - y * y); }
};
