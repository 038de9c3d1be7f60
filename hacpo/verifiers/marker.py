"""An answer stands after the last marker, such as `#95`."""

from hacpo.verifiers.grades import NO_ANSWER, Grade, judged


def grade_marker(answer: str, response: str, marker: str) -> Grade:
    """Correct if the text after the last marker, stripped, equals the answer."""
    _, found, last = response.rpartition(marker)
    if not found:
        return NO_ANSWER
    return judged(last.strip() == answer.strip())
