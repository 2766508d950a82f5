"""What may be chosen: the switches a user can set, and the errors and types that every room shares."""
