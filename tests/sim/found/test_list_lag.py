"""Seed 1: a cloud that shows a new machine late was taken at its word, and a fresh node was given up after 20 s."""

from broker.core.model import NodeState
from broker.core.ports import CloudState
from broker.migration.effects import CreateNode, FindNode
from tests.unit.migration.scene import Scene


def requested() -> tuple[Scene, str]:
    scene = Scene()
    scene.intend()
    (create,) = scene.plan()
    assert isinstance(create, CreateNode)
    scene.settle(create, scene.cloud(create.token, CloudState.PENDING))
    return scene, create.token


def deny(scene: Scene, after_s: float) -> None:
    for effect in scene.after(after_s).plan():
        if isinstance(effect, FindNode):
            scene.settle(effect, None)


def test_denials_within_the_list_lag_say_nothing():
    scene, token = requested()
    for _ in range(3):
        deny(scene, 9)
    scene.plan()
    assert scene.nodes[token].state == NodeState.REQUESTED


def test_denials_after_it_do():
    scene, token = requested()
    deny(scene, 31)
    deny(scene, 10)
    scene.plan()
    assert scene.nodes[token].state == NodeState.GONE
