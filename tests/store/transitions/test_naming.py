"""What a name of a request asks for is kept beside it: by the first that uses it."""

from uuid import UUID

import pytest
from support.scene import Scene

pytestmark = pytest.mark.anyio

NAME, OTHER = UUID(int=1), UUID(int=2)
THIS, THAT = UUID(int=11), UUID(int=12)


async def test_the_first_that_uses_a_name_says_what_it_asks_for(scene: Scene):
    assert await scene.run(scene.do.bind_requests({NAME: THIS})) == {NAME}
    assert await scene.run(scene.do.bind_requests({NAME: THAT, OTHER: THAT})) == {OTHER}
    assert await scene.run(scene.do.bind_requests({NAME: THIS})) == set()
    assert await scene.run(scene.do.carried_out([THIS, THAT])) == {THIS, THAT}
    assert len(await scene.requests()) == 4


async def test_what_a_later_one_asks_for_is_not_kept(scene: Scene):
    await scene.run(scene.do.bind_requests({NAME: THIS}))
    await scene.run(scene.do.bind_requests({NAME: THAT}))
    assert await scene.run(scene.do.carried_out([THIS, THAT])) == {THIS}
