import matplotlib.pyplot as plt
import numpy as np

b, u, gamma = np.linspace(-4, 4, 401), np.linspace(-1.5, 3, 401), 2.5
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.plot(b, np.abs(b), label="L1")
left.plot(b, 0.5 * np.abs(b) + 0.25 * b**2, label="elastic net")
left.plot(
    b,
    np.where(np.abs(b) < gamma, np.abs(b) - b**2 / (2 * gamma), gamma / 2),
    label="MCP, of the gallery",
)
left.set(xlabel="Coefficient", title="Penalties", ylim=(0, 5))
right.plot(u, 0.5 * (1 - u) ** 2, label="squared")
right.plot(u, np.log1p(np.exp(-u)), label="logistic")
right.plot(u, np.maximum(1 - u, 0) ** 2, label="squared hinge, of the gallery")
right.set(xlabel="Prediction u", title="Losses, for y = 1", ylim=(0, 4))
for ax in (left, right):
    ax.legend()
