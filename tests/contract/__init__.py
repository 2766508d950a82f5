"""What a user can say about how a program runs in parallel, on one place, on threads and on Ray actors."""
