"""What the compiler did, for people: reports, pictures, pages for notebooks."""
