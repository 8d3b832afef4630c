"""Seeds 6 and 7: a node that was ended before we saw it run, on a cloud that forgets the dead, stood in no ledger."""

from broker.core.ports import CloudState
from broker.migration.effects import CreateNode, FindNode
from tests.unit.migration.scene import Scene


def test_a_meter_that_nobody_saw_is_counted_from_the_order():
    scene = Scene()
    placement_id = scene.intend()
    (create,) = scene.plan()
    assert isinstance(create, CreateNode)
    sent_ms = scene.now_ms
    scene.settle(create, scene.cloud(create.token, CloudState.PENDING))
    scene.after(scene.rules.deadlines_s["intended"] + 10).plan()
    assert scene.state(placement_id) == "releasing"
    for _ in range(4):
        for effect in scene.after(31).plan():
            if isinstance(effect, FindNode):
                scene.settle(effect, None)
    node = scene.nodes[create.token]
    assert node.state == "gone"
    assert node.billed_from_ms == sent_ms
    assert node.ended_at_ms is not None
    assert node.ended_at_ms > sent_ms
