"""Reports of the compiler for people: texts, pictures, pages for notebooks."""

from ..program.program import Program, register_page


def _page(program: Program) -> str:
    from .page import of_program  # what draws pages is imported when one is shown

    return of_program(program)


register_page(_page)
