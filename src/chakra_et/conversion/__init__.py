"""Profiles to traces: find and pair the files, convert ranks in parallel, match them, check the result, write it."""

from __future__ import annotations

from chakra_et.conversion.convert import ConversionResult, ConvertOptions, convert, convert_to
from chakra_et.conversion.quality import Failure, Quality, RankQuality

__all__ = ["ConversionResult", "ConvertOptions", "Failure", "Quality", "RankQuality", "convert", "convert_to"]
