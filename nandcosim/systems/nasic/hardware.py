"""Hardware of NASiC: the array and its techniques, converters, weights and inputs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from nandcosim.systems.config import SystemConfig, setting
from nandcosim.systems.nand import Count

__all__ = ["ArrayFields", "ConverterFields", "HardwareFields", "PrecisionFields", "Technique"]

NotNegative = Annotated[float, Field(ge=0.0)]
Strings = Annotated[int, Field(ge=1, le=16)]
Levels = Annotated[int, Field(ge=2, le=4)]
States = Annotated[int, Field(ge=2, le=8)]
CamBits = Annotated[int, Field(ge=1, le=3)]
WordBits = Annotated[int, Field(ge=1, le=16)]
AdcBits = Annotated[int, Field(ge=1, le=16)]

#: Base: experts along the page, binary cells, serial bits. T1: interleaved experts selected
#: by CAM layers. T2: all strings of a select group, signed thermometer weights and source-line
#: inputs. T3: cells of m states.
Technique = Literal["base", "t1", "t1t2", "t1t2t3"]


class ArrayFields(SystemConfig):
    """The array, and how experts lie in it."""

    technique: Technique | tuple[Technique, ...] = setting(
        "t1t2t3", unit="", meaning="techniques in use, one on top of the other",
        origin="stated: Fig. 8(c)",
    )  # fmt: skip
    states: States | tuple[States, ...] = setting(
        4, unit="1", meaning="states of a weight cell (m), with T3",
        origin="stated: Fig. 7, 3, 4, m",
    )  # fmt: skip
    cam_bits: CamBits | tuple[CamBits, ...] = setting(
        2, unit="1", meaning="bits of a CAM cell", origin="stated: Fig. 4(d)"
    )
    interleave: Count | tuple[Count, ...] = setting(
        16, unit="1", meaning="experts interleaved on the same bitlines, at most; with T1",
        origin="derived: the growth of Fig. 8(b) from 4 to 16 times",
    )  # fmt: skip
    sigma: NotNegative | tuple[NotNegative, ...] = setting(
        0.15, unit="1", meaning="standard deviation of a conducting string's current over its mean",
        origin="stated: Fig. 8(c), after Lue et al. 2019",
    )  # fmt: skip
    cells: Count | tuple[Count, ...] = setting(
        128, unit="1", meaning="cells of a string, CAM cells included",
        origin="assumed: not stated; as the circuit's tables",
    )  # fmt: skip
    strings: Strings | tuple[Strings, ...] = setting(
        4, unit="1", meaning="strings of a bitline in a block: select lines of a ground line",
        origin="stated: section on T2, 4 of 4 to 8",
    )  # fmt: skip
    bitlines: Count | tuple[Count, ...] = setting(
        16_384, unit="1", meaning="bitlines of a plane", origin="assumed: not stated"
    )
    blocks: Count | tuple[Count, ...] = setting(
        2048, unit="1", meaning="blocks of a plane", origin="assumed: not stated"
    )
    planes: Count | tuple[Count, ...] = setting(
        16, unit="1", meaning="planes that compute at once", origin="assumed: not stated"
    )


class PrecisionFields(SystemConfig):
    """Weights and inputs as numbers."""

    weight_bits: WordBits | tuple[WordBits, ...] = setting(
        4, unit="1", meaning="bits of a signed weight", origin="assumed: not stated"
    )
    input_bits: WordBits | tuple[WordBits, ...] = setting(
        8, unit="1", meaning="bits of a signed input",
        origin="assumed: not stated; inputs often need more than weights (section on T2)",
    )  # fmt: skip
    input_levels: Levels | tuple[Levels, ...] = setting(
        4, unit="1", meaning="levels of the source line, with T2", origin="stated: Fig. 6(d)"
    )


class ConverterFields(SystemConfig):
    """Analogue-to-digital converters of the bitlines."""

    adc_bits: AdcBits | tuple[AdcBits, ...] = setting(
        8, unit="1", meaning="bits of a converter", origin="stated: Fig. 9, SAR, after Miki 2017"
    )
    adc_energy: NotNegative | tuple[NotNegative, ...] = setting(
        1.1e-12, unit="J", meaning="a conversion of 8 bits; doubles with every bit",
        origin="sourced: 1.1 MS/s, 7.5 effective bits, 40 nm (Murmann's survey); doubling assumed",
    )  # fmt: skip
    adc_time: NotNegative | tuple[NotNegative, ...] = setting(
        0.9e-6, unit="s", meaning="a conversion", origin="sourced: the same, 1.1 MS/s"
    )
    adc_area: NotNegative | tuple[NotNegative, ...] = setting(
        1e-3, unit="mm^2", meaning="area of a converter", origin="assumed: not stated"
    )
    bitlines_per_adc: Count | tuple[Count, ...] = setting(
        8, unit="1", meaning="bitlines that share a converter, one after the other",
        origin="assumed: not stated; decides whether the converters dominate",
    )  # fmt: skip


class HardwareFields(ArrayFields, PrecisionFields, ConverterFields):
    """All of NASiC's hardware."""
