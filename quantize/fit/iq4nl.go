package fit

import "github.com/nstf/nstf/formats/scheme"

var iq4Table = newLevelTable(scheme.IQ4Levels())

// endsIQ4 are the ends (see [layout]) of the levels of iq4_nl and iq4_xs.
var endsIQ4 = []float32{-16, -12, -9, -6, -3, 0, 3, 6, 9, 13}

// iq4nl is the layout of docs/schemes/iq4nl.md.
var iq4nl = layout{limit: 113 * maxHalf, group: 32, low: -127, high: 113, table: iq4Table, ends: endsIQ4, pack: packQ40}
