import numpy as np
import pandas as pd

SUBJECTS = {
    "buses": "bus stop driver timetable ticket route night crowded seat station delay fare queue",
    "schools": "school teacher class pupil lesson lunch desk parents exam roof rules grade term",
    "parks": "park tree bench lake dog path grass flower pond shade picnic fence swing",
    "taxes": "tax council budget rent house bill rate office letter form payment debt plan",
}
COMMON = "the and we for of is in not our to people town really nobody thanks".split()
GERMAN = "der Bus ist heute nicht gekommen und die Schule hat auf uns gewartet".split()
words = [line.split() for line in SUBJECTS.values()]
chances = 1 / np.arange(3, 16)
chances /= chances.sum()
rng = np.random.default_rng(0)
n = 2000
year = rng.integers(2019, 2025, n)
shares = rng.dirichlet([0.15] * 4, n)
grows = rng.random(n) < 0.06 * (year - 2019)  # more and more posts are about buses
shares[grows] = [0.85, 0.05, 0.05, 0.05]


def post(share):
    subjects = rng.choice(4, rng.integers(8, 30), p=share)
    return " ".join([*(rng.choice(words[k], p=chances) for k in subjects), *rng.choice(COMMON, 12)])


posts = pd.DataFrame(
    {"year": year.astype(object), "author": rng.integers(0, 400, n), "text": [*map(post, shares)]}
)
german = posts.index % 40 == 3
posts.loc[german, "text"] = [" ".join(rng.permutation(GERMAN)) for _ in range(german.sum())]
posts["text"] = (
    "<p>" + posts["text"] + " &amp; <a href='http://example.org/terms'>the terms</a></p>"
)
posts.loc[5::40, "text"] = "<b>CHEAP</b> bus tickets!!! http://example.org/x"  # from many accounts
posts.loc[::30, "text"] = None
posts.loc[7::60, "text"] = " \n"
posts.loc[11::90, "year"] = "unknown"
posts = pd.concat([posts, posts.sample(100, random_state=0)], ignore_index=True)  # posted twice
