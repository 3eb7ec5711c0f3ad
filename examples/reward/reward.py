"""A scorer behind `plait serve --scorer NAME` as the reward function of a trainer."""

import base64
import io
import json
import os
import urllib.request

from PIL import Image

URL = os.environ.get("PLAIT_URL", "http://127.0.0.1:8000")
KEY = os.environ.get("PLAIT_KEY", "")  # of a server with --api-key-env


def reward(
    prompts: list[str], images: list[Image.Image], **_: object
) -> list[float | None]:
    """One reward an image, the higher the better; None where there is no score.

    A None is no zero: leave its sample out of the update, and out of its group's mean.
    """
    pairs = zip(prompts, images, strict=True)
    items = [{"query": prompt, "answer": [_part(image)]} for prompt, image in pairs]
    (scorer,) = _ask("/scorers")["data"]
    results = _ask("/score", {"items": items})["results"]
    sign = 1 if scorer["direction"] == "higher" else -1
    return [None if r["value"] is None else sign * r["value"] for r in results]


def _part(image: Image.Image) -> dict[str, object]:
    file = io.BytesIO()
    image.save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def _ask(path: str, body: object = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    head = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    with urllib.request.urlopen(urllib.request.Request(URL + path, data, head)) as reply:
        return json.load(reply)


if __name__ == "__main__":
    colours = [Image.new("RGB", (64, 64), name) for name in ("red", "green")]
    print(reward(["A red square.", "A red square."], colours))
