package gpu

import (
	"errors"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
)

// ranksOf returns a team of so many ranks that have no devices, for what holds them together.
func ranksOf(n int) *Team {
	t := &Team{}
	meeting := newMeeting(n)
	for i := range n {
		m := &member{Ranks: hip.Ranks{Rank: i, Count: n}, meeting: meeting}
		t.members, t.ranks = append(t.members, m), append(t.ranks, &Engine{team: m})
	}
	return t
}

// A team in which a rank failed takes no further pass where another may wait for it, and
// goes on where nothing had been launched. No rank waits for ever for one that failed.
func TestTeamFails(t *testing.T) {
	lost := errors.New("lost")
	meet := func(e *Engine) error { return e.team.meeting.wait(nil) }
	for _, c := range []struct {
		name  string
		does  func(i int, e *Engine) error
		stays bool
	}{
		{"all before they launch", func(int, *Engine) error { return lost }, true},
		{"one before they meet", func(i int, e *Engine) error {
			if i == 1 {
				return lost
			}
			return meet(e)
		}, true},
		{"one alone", func(i int, _ *Engine) error {
			if i == 1 {
				return lost
			}
			return nil
		}, false},
		{"one between two lists", func(i int, e *Engine) error {
			if err := meet(e); err != nil {
				return err
			}
			e.team.meeting.send()
			if i == 0 {
				return lost
			}
			return meet(e)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			team := ranksOf(3)
			if err := team.each(c.does); !errors.Is(err, lost) {
				t.Fatalf("%v", err)
			}
			called := make([]bool, 3)
			err := team.each(func(i int, e *Engine) error {
				called[i] = true
				return meet(e)
			})
			if c.stays && (err != nil || !called[0] || !called[2]) {
				t.Errorf("the team does not go on: %v", err)
			}
			if !c.stays && (!errors.Is(err, lost) || called[0] || called[2]) {
				t.Errorf("the team goes on: %v", err)
			}
		})
	}
}
