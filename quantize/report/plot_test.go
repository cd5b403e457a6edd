package report

import (
	"math"
	"testing"
)

// Labels of an axis stay apart, whatever its range.
func TestTicksStayApart(t *testing.T) {
	const width, height = 345.0, 230.0 // of the plane, in points
	for lo := -7.0; lo < 0; lo++ {
		for decades := 0.3; decades < 8; decades += 0.7 {
			values := []float64{lo, lo + decades}
			a := axis{log: true}
			from, to, _ := bounds(a, values)
			for _, c := range []struct {
				few, length, least float64
				wide               bool
			}{{sideBySide, width, 0, true}, {stacked, height, 12, false}} {
				all := ticks(a, values, c.few)
				for i := 1; i < len(all); i++ {
					gap := (all[i].Value - all[i-1].Value) / (to - from) * c.length
					least := c.least
					if c.wide { // 5.5 points a figure
						least = 5.5 * float64(len(all[i].Label)+len(all[i-1].Label)) / 2
					}
					if gap < least && !math.IsNaN(gap) {
						t.Errorf("10^%.1f to 10^%.1f: %s and %s are %.0f points apart of %.0f", lo, lo+decades, all[i-1].Label, all[i].Label, gap, least)
					}
				}
			}
		}
	}
}
