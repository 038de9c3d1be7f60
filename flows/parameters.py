"""What Prefect checks at submission and shows in its form; the config's own checks come later."""

from typing import Annotated

from pydantic import Field

Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
AtLeastOne = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Override = Annotated[str, Field(pattern=r"^[^=\s]+=")]

_Seed = Annotated[int, Field(ge=0)]
Seeds = Annotated[list[_Seed], Field(min_length=1)]

_METHOD = r"^(initial|grpo|gspo|gspo_x([1-9][0-9]*|N)|naive|hacpo)$"
_Method = Annotated[str, Field(pattern=_METHOD)]
Methods = Annotated[list[_Method], Field(min_length=1)]
