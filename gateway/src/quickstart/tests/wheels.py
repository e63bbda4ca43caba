"""Makes two tiny wheels to stand for the engine and the model: wheels.py FOLDER."""

import sys
import zipfile

folder = sys.argv[1]


def wheel(name, files):
    info = f"{name}-1.0.dist-info"
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(f"{folder}/{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


wheel("tideengine", {"tideengine/__init__.py": "WORKS = True\n"})
wheel("tidemodel", {"tidemodel/tide.gguf": "GGUF" + "tide" * 1000})
