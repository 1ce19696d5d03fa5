"""
Recommend from a data frame
===========================

A data frame has the columns reader, title and stars.  We fit a model to it and recommend books.
The ids of readers and books are strings.
"""

# %%
# We generate readers and books.  Each reader likes two of five genres, and some books are better
# than others.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV, KFold

from schmp_estimators import ModelParallelMF

rng = np.random.default_rng(0)
genres = np.array(["crime", "poetry", "history", "travel", "science"])
books = pd.DataFrame({"genre": np.repeat(genres, 60), "quality": rng.normal(0, 0.5, 300)})
books["title"] = [f"{genre} {number}" for number, genre in enumerate(books["genre"])]
likes = np.array([rng.permutation([1.2, 0.8, 0.0, -0.6, -1.2]) for _ in range(1200)])
reader, book = np.divmod(rng.choice(1200 * 300, 30_000, replace=False), 300)
taste = likes[reader, np.repeat(np.arange(5), 60)[book]]
stars = np.clip(
    np.rint(3.4 + taste + books["quality"].to_numpy()[book] + rng.normal(0, 0.7, 30_000)), 1, 5
)
names = {
    "reader": [f"reader {number}" for number in reader],
    "title": books["title"].to_numpy()[book],
}
frame = pd.DataFrame({**names, "stars": stars})
print(frame.head())

# %%
# We pass two columns of ids and a column of ratings.  ``alpha`` is the one parameter that is worth
# a search.  Scores are R².  ``clip`` keeps predictions between one star and five.
search = GridSearchCV(
    ModelParallelMF(8, clip=True, random_state=0),
    {"alpha": [0.03, 0.1, 0.3]},
    cv=KFold(3, shuffle=True, random_state=0),
).fit(frame[["reader", "title"]], frame["stars"])
print(pd.DataFrame(search.cv_results_)[["param_alpha", "mean_test_score"]])
mf = search.best_estimator_

# %%
# What should reader 7 read next?  Books that this reader has rated are left out.
titles, scores = mf.recommend(["reader 7"], n=8)
print(
    "likes:",
    ", ".join(f"{genre} {like:+.1f}" for genre, like in zip(genres, likes[7], strict=True)),
)
print(pd.DataFrame({"title": titles[0], "stars expected": scores[0].round(2)}))

# %%
# Books are similar if their vectors have similar directions.  The model does not know the genres.
genre_of = books.set_index("title")["genre"]
asked = books.groupby("genre", sort=False)["title"].first()
similar, cosines = mf.similar_items(asked, n=60)
shares = np.array([[np.mean(genre_of[row] == other) for other in genres] for row in similar])

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
axes[0].imshow(shares, cmap="Blues", vmin=0, vmax=1)
axes[0].set(
    xticks=range(5),
    xticklabels=genres,
    yticks=range(5),
    yticklabels=asked,
    title="Genres of the 60 most similar books",
)
axes[0].grid(False)
for row in range(5):
    for column in range(5):
        colour = "white" if shares[row, column] > 0.5 else "#2b3a42"
        axes[0].text(
            column,
            row,
            f"{shares[row, column]:.0%}",
            ha="center",
            va="center",
            color=colour,
            fontsize=8,
        )
predicted = mf.predict(frame[["reader", "title"]])
axes[1].boxplot([predicted[stars == value] for value in range(1, 6)], showfliers=False)
axes[1].set(title="Predictions, by the stars given", xlabel="Stars given", ylabel="Stars predicted")
plt.show()

# %%
assert mf.score(frame[["reader", "title"]], frame["stars"]) > 0.3
assert np.diag(shares).min() > 0.4
