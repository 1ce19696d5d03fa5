"""What kernels have in common that go document by document.

Their loops over documents and tokens are long functions all the same: what they are made of is `inlined`, which counts
no references.  Where references are counted, an array that is handed to a function with branches or loops costs two
atomic instructions; made of such functions, kernels took twice the time.
"""

from schmp_estimators.core.jit import inlined
from schmp_estimators.lda.kernels.document_priors import alpha_at

#: What is left of a sum after one term is taken away may be rounding if it is less than this part of it.
ROUNDING = 1e-9


@inlined
def move_total(total, inverse, inverse_less, old, new, beta_sum):
    """Move a token between topics in the totals; `inverse_less` is the inverse with one token less."""
    total[old] -= 1
    total[new] += 1
    inverse[old] = inverse_less[old]
    inverse_less[old] = 1.0 / (total[old] - 1 + alpha_at(beta_sum, old))
    inverse_less[new] = inverse[new]
    inverse[new] = 1.0 / (total[new] + alpha_at(beta_sum, new))
