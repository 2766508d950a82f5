"""One scalar expression, several forms: array calls now, source text for compilers later."""
