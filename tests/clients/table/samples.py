"""The picture and the files that clients send, and how the scripted model names what it got of them. Standard library only."""

import re
import struct
import zlib

# The names of the files in the folder where a script runs.
PICTURE, PDF, TEXT = "picture.png", "harbour.pdf", "harbour.txt"
# The picture has one colour. Belay decodes pictures and encodes them again, so its bytes change; its size and its colour do not.
WIDTH, HEIGHT, COLOUR = 21, 34, "3366cc"
# Each word stands in one file and nowhere else.
PDF_WORD, TEXT_WORD = "heliotrope", "marjoram"
# What the model says of the picture, of a file, and of a request that has neither.
SEEN = f"picture {WIDTH} x {HEIGHT} #{COLOUR}"
READ_PDF, READ_TEXT = f"word {PDF_WORD}", f"word {TEXT_WORD}"
NOTHING = "no picture and no word"
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def write(folder):
    """Writes the picture and the files into a folder."""
    (folder / PICTURE).write_bytes(picture())
    (folder / PDF).write_bytes(pdf(f"The word of the day is {PDF_WORD}."))
    (folder / TEXT).write_text(f"The word of the day is {TEXT_WORD}.\n", encoding="utf-8")


def picture():
    """A PNG of WIDTH x HEIGHT pixels, eight bits for each of red, green and blue."""
    rows = (b"\0" + bytes.fromhex(COLOUR) * WIDTH) * HEIGHT
    head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    return SIGNATURE + b"".join(chunk(kind, data) for kind, data in ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pdf(text):
    """A PDF with one page and one line of ASCII text without brackets."""
    drawn = f"BT /F1 18 Tf 40 700 Td ({text}) Tj ET"
    objects = (
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    )
    written, places = "%PDF-1.4\n", []
    for number, value in enumerate(objects, 1):
        places.append(len(written))
        written += f"{number} 0 obj\n{value}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(written)}\n%%EOF\n"
    return f"{written}xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}".encode("ascii")


def described(data):
    """The size and the colour of the first pixel of a PNG with eight bits for each of red, green and blue."""
    if not data.startswith(SIGNATURE):
        return f"picture that is no PNG: {data[:8]!r}"
    width, height = struct.unpack(">II", data[16:24])
    pixels, at = b"", len(SIGNATURE)
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            pixels += data[at + 8 : at + 8 + length]
        at += length + 12
    # The first pixel stands as it is behind the filter of its line, whichever that is: all its neighbours are zero.
    return f"picture {width} x {height} #{zlib.decompress(pixels)[1:4].hex()}"


def words(text):
    """What the model says of the words that it has read."""
    return [f"word {word}" for word in (PDF_WORD, TEXT_WORD) if re.search(rf"\b{word}\b", text)]
