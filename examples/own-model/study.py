"""Two models of one's own beside one of plait, on queries of the miniature world."""

import io

from PIL import Image, ImageOps

import plait


class Mirror:
    """Gives the images of a query back, mirrored, or a plain one where it has none."""

    kind, version, seeded = "draft", 1, False

    def __init__(self, colour="grey"):
        self.colour = colour

    def __call__(self, queries):
        return [self.answer(query) for query in queries]

    def answer(self, query):
        given = [Image.open(io.BytesIO(image.read())) for image in query.images]
        pictures = [ImageOps.mirror(picture) for picture in given]
        return [query.text, *(pictures or [Image.new("RGB", (64, 64), self.colour)])]


def text_alone(query):
    """Say the question again."""
    return query.text


def share_of_images(candidate):
    """Return how many of the segments of an answer are images."""
    segments = candidate.document.segments
    return len(candidate.document.images) / len(segments)


share_of_images.scale = "0-1"

if __name__ == "__main__":
    run = plait.run(
        data="miniature:12",
        systems=[Mirror, Mirror("pink"), text_alone, "qwen2-vl-7b+sdxl", "gt"],
        scorers=["clipscore", "truth:match", share_of_images],
        weights="mini",
        executor="local",
        out="runs/own-model",
    )
    print(run.leaderboard.markdown)
    print("page:", run.root / "report.html")
