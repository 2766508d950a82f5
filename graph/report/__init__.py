"""Reports of the compiler for people: texts, pictures, pages for notebooks."""
