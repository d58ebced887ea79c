"""The texts of a TIFF: tags of the image and of its bands, descriptions, units.

rasterio reads them from the file and from a file beside it (``.aux.xml``). It expects UTF-8. If one text has
another encoding, it returns no texts of the image, or raises an error. Then the texts are read from the
directory, as UTF-8 or else Latin-1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree
from xml.sax.saxutils import unescape

from frazil.readers.attribute_values import text
from frazil.readers.tiff_layout import Directory

_METADATA: Final = 42112
_QUOTES: Final = {"&quot;": '"', "&apos;": "'"}
#: Tag -> its name in GDAL.
_TEXTS: Final = {
    269: "TIFFTAG_DOCUMENTNAME",
    270: "TIFFTAG_IMAGEDESCRIPTION",
    305: "TIFFTAG_SOFTWARE",
    306: "TIFFTAG_DATETIME",
    315: "TIFFTAG_ARTIST",
    316: "TIFFTAG_HOSTCOMPUTER",
    33432: "TIFFTAG_COPYRIGHT",
}
#: The names in GDAL of tags that are not texts.
_NUMBERS: Final = (
    "AREA_OR_POINT",
    "TIFFTAG_XRESOLUTION",
    "TIFFTAG_YRESOLUTION",
    "TIFFTAG_RESOLUTIONUNIT",
    "TIFFTAG_MINSAMPLEVALUE",
    "TIFFTAG_MAXSAMPLEVALUE",
)
#: Attributes that control how xarray decodes values. Tags with these names are ignored, because GDAL uses the
#: nodata, scale and offset of the file.
_DECODING: Final = frozenset(
    {
        "_FillValue",
        "_Unsigned",
        "add_offset",
        "coordinates",
        "dtype",
        "grid_mapping",
        "missing_value",
        "scale_factor",
    }
)


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of an image. ``bands``, ``descriptions`` and ``units`` have an entry for each band."""

    image: dict[str, str]
    bands: tuple[dict[str, str], ...]
    descriptions: tuple[str | None, ...]
    units: tuple[str | None, ...]

    def attrs(self) -> dict[str, Any]:
        """Return the tags as attributes of one variable with all bands.

        A tag with the same value in all bands becomes text, other tags become a list with a text for each
        band. A band without the tag has the tag of the image, or an empty text.
        """
        names = dict.fromkeys(name for band in self.bands for name in band)
        tags = {name: [band.get(name, self.image.get(name, "")) for band in self.bands] for name in names}
        attrs = {**self.image, **{name: one_or_list(values) for name, values in tags.items()}}
        return {name: value for name, value in attrs.items() if name not in _DECODING}


def one_or_list(values: Iterable[Any]) -> Any:
    """Return the value that all bands share, or the list of the values of the bands."""
    texts = list(values)
    return texts[0] if len(set(texts)) == 1 else texts


def read_texts(image: Any, directory: Directory) -> Texts:
    """Return the texts of an image of rasterio. ``directory`` is the directory of its page."""
    raw = {tag: directory[tag].tobytes() for tag in (*_TEXTS, _METADATA) if tag in directory}
    if all(map(_is_utf8, raw.values())):
        bands = tuple(image.tags(band) for band in image.indexes)
        return Texts(image.tags(), bands, tuple(image.descriptions), tuple(image.units))
    tags: dict[str, str] = {}
    for name in _NUMBERS:
        with suppress(UnicodeDecodeError):
            value = image.get_tag_item(name)
            tags |= {name: value} if value else {}
    tags |= {name: text(raw[tag]) for tag, name in _TEXTS.items() if tag in raw}
    texts = Texts(tags, tuple({} for _ in image.indexes), (None,) * image.count, (None,) * image.count)
    return _with_items(texts, text(raw.get(_METADATA, b"")))


def _with_items(texts: Texts, document: str) -> Texts:
    """Add the items of the document in the tag of GDAL. Each item belongs to the image or to a band."""
    image, bands = dict(texts.image), [dict(band) for band in texts.bands]
    special = {"description": list(texts.descriptions), "unittype": list(texts.units)}
    for item, value in _items(document):
        sample, role, name = item.get("sample", ""), item.get("role", "").lower(), item.get("name", "")
        band = int(sample) if sample.isdecimal() and int(sample) < len(bands) else None
        if role in special:
            if band is not None:
                special[role][band] = value
        elif not role and "domain" not in item:
            (image if band is None else bands[band])[name] = value
    return Texts(image, tuple(bands), tuple(special["description"]), tuple(special["unittype"]))


def _items(document: str) -> Iterator[tuple[dict[str, str], str]]:
    if "<!" in document:  # GDAL does not write entities or a document type
        return
    with suppress(ElementTree.ParseError):
        for item in ElementTree.fromstring(document).iter("Item"):
            yield item.attrib, unescape(item.text or "", _QUOTES)  # GDAL escapes twice


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
