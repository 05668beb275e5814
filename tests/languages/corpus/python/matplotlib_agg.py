import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
fig, axes = plt.subplots(figsize=(3, 2))
axes.plot([1, 2, 3], [1, 4, 9], label="x²")
axes.set_title("žluť")
axes.legend()
fig.savefig("plot.png")
data = open("plot.png", "rb").read()
print(data[:8], len(data) > 2000)
