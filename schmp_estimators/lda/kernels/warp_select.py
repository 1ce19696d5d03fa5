"""Choice without a branch."""

from numba.core import types
from numba.extending import intrinsic


@intrinsic
def select(typingctx, condition, yes, no):
    """Return `yes` or `no`, which have the same type, without a branch that the processor would have to guess."""
    if condition != types.boolean or yes != no:
        return None

    def codegen(context, builder, signature, args):
        chosen = builder.select(*args)
        chosen.set_metadata("unpredictable", builder.module.add_metadata([]))
        return chosen

    return yes(condition, yes, no), codegen
