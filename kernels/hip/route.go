package hip

import "fmt"

// Route chooses experts for each row and their shares, by the formula of
// graph.MoE, whose constants it has under the same names: scores of the router's
// logits, moved by a bias, within the best groups; the TopK largest (the lower
// index first among equals), divided by their sum where Normalize is set.
type Route struct {
	T, Experts, TopK int // TopK is at most MaxChosen
	Normalize        bool
	Logits           Address // f32[T][Experts]
	Chosen           Address // i32[T][TopK]
	Share            Address // f32[T][TopK]
	// Slots, where given, lists all T*TopK slots (row*TopK + choice) by expert,
	// those of one expert ascending; expert e has Slots[First[e]:First[e+1]].
	Slots Address // i32[T*TopK]
	First Address // i32[Experts+1]
	// What only some routers have. Where all of it is zero the kernel is that of a
	// softmax over all experts, without a word about the rest.
	Score                        Score
	Bias                         Address // f32[Experts] beside the scores in the choice; 0: none
	Groups, TopGroups, GroupBest int     // Groups 0: none
	ZeroMasked                   bool
	Epsilon, Floor               float32 // of the sum, with Normalize
	Scale                        float32 // of the shares; 0: 1
	ExpertScale                  Address // f32[Experts]: of each expert's; 0: 1
}

// A Score is how logits become scores, numbered as in route.hip.
type Score int

// The scores.
const (
	ScoreSoftmax Score = iota
	ScoreSigmoid
	ScoreSelected
	ScoreRoot
)

// MaxChosen is the most experts of a row: a lane keeps each.
const MaxChosen = 32

// defines are the constants of a router that has more than a softmax.
func (o *Route) defines() string {
	if !o.general() {
		return "ROUTE_GENERAL=0"
	}
	scale := o.Scale
	if scale == 0 {
		scale = 1
	}
	return fmt.Sprintf("ROUTE_GENERAL=1 ROUTE_SCORE=%d ROUTE_BIAS=%d ROUTE_GROUPS=%d ROUTE_TOP_GROUPS=%d ROUTE_BEST=%d ROUTE_ZERO=%d ROUTE_EPSILON=%.9ef ROUTE_FLOOR=%.9ef ROUTE_SCALE=%.9ef ROUTE_EACH_SCALE=%d",
		o.Score, flag(o.Bias != 0), o.Groups, o.TopGroups, o.GroupBest, flag(o.ZeroMasked), o.Epsilon, o.Floor, scale, flag(o.ExpertScale != 0))
}

func (o *Route) general() bool {
	return o.Score != ScoreSoftmax || o.Bias != 0 || o.Groups != 0 || o.Epsilon != 0 || o.Floor != 0 || o.Scale != 0 && o.Scale != 1 || o.ExpertScale != 0
}

const groupThreads = 256

// Calls returns the launches.
func (o *Route) Calls(t Target) []Call {
	unit := Unit{"route.hip", fmt.Sprintf("ROUTE_EXPERTS=%d ROUTE_TOPK=%d ROUTE_NORMALIZE=%d %s", o.Experts, o.TopK, flag(o.Normalize), o.defines())}
	args := []Arg{Ptr(o.Logits), Ptr(o.Chosen), Ptr(o.Share)}
	if o.general() {
		args = append(args, Ptr(o.Bias), Ptr(o.ExpertScale))
	}
	calls := []Call{{
		Early: true, Unit: unit, Symbol: "nstf_route", Grid: [3]uint32{uint32(o.T), 1, 1}, Block: [3]uint32{uint32(t.Wave), 1, 1}, Args: args,
	}}
	if o.Slots != 0 {
		calls = append(calls, Call{
			Early: true, Unit: unit, Symbol: "nstf_route_slots", Grid: [3]uint32{uint32(ceil(o.Experts, groupThreads/t.Wave)), 1, 1}, Block: [3]uint32{groupThreads, 1, 1},
			Args: []Arg{Ptr(o.Chosen), Ptr(o.Slots), Ptr(o.First), I32(o.T * o.TopK)},
		})
	}
	return calls
}

// Combine adds up the experts' outputs of each row by their shares, in
// ascending order of the experts, after what a shared layer gave:
//
//	Out[t] = sigmoid(Gate[t])*Shared[t] + sum over j of Share[t][j] * Parts[t][j]
type Combine struct {
	T, D, TopK int     // TopK 0: what the shared layer gave alone, or zeros
	Parts      Address // f32[T][TopK][D]
	Chosen     Address // i32[T][TopK]
	Share      Address // f32[T][TopK]; 0: ones
	Shared     Address // f32[T][D]; 0: none
	Gate       Address // f32[T]; 0: the factor is 1
	Out        Address // f32[T][D], which may be Shared
	Some       bool    // whether slots may be Here.Order's, of which some are left out
}

// Calls returns the launch.
func (o *Combine) Calls(Target) []Call {
	args, shared := []Arg{Ptr(o.Parts), Ptr(o.Chosen), Ptr(o.Share), Ptr(o.Out), I32(o.D)}, 0
	if o.Shared != 0 {
		args, shared = append(args, Ptr(o.Shared), Ptr(o.Gate)), 1+flag(o.Gate != 0)
	}
	return []Call{{
		Early: true, Unit: Unit{"combine.hip", fmt.Sprintf("COMBINE_TOPK=%d COMBINE_SHARED=%d COMBINE_ONES=%d COMBINE_SOME=%d", o.TopK, shared, flag(o.Share == 0), flag(o.Some))}, Symbol: "nstf_combine",
		Grid: [3]uint32{uint32(ceil(o.D, pointwiseThreads)), uint32(o.T), 1}, Block: [3]uint32{pointwiseThreads, 1, 1}, Args: args,
	}}
}

// Here finds which of the experts of N slots lie on the device: Local is where, of one that does not
// the first, and Order the expert, of one that does not 2^31 - 1.
type Here struct {
	N            int
	Chosen       Address // i32[N]
	Place        Address // i32[experts]: where each lies, below 0: not here
	Local, Order Address // i32[N]
}

// Calls returns the launch.
func (o *Here) Calls(Target) []Call {
	return []Call{{
		Early: true, Unit: Unit{File: "here.hip"}, Symbol: "nstf_here",
		Grid: [3]uint32{uint32(ceil(o.N, pointwiseThreads)), 1, 1}, Block: [3]uint32{pointwiseThreads, 1, 1},
		Args: []Arg{Ptr(o.Chosen), Ptr(o.Place), Ptr(o.Local), Ptr(o.Order), I32(o.N)},
	}}
}

// Weigh computes what experts read where the shares are the input's: Out[t][j] is
// X[t] times Share[t][j].
type Weigh struct {
	T, D, TopK int
	X          Address // f32[T][D]
	Share      Address // f32[T][TopK]
	Out        Address // f32[T][TopK][D]
}

// Calls returns the launch.
func (o *Weigh) Calls(Target) []Call {
	return []Call{{
		Early: true, Unit: Unit{File: "weigh.hip"}, Symbol: "nstf_weigh",
		Grid: [3]uint32{uint32(ceil(o.D, pointwiseThreads)), uint32(o.T * o.TopK), 1}, Block: [3]uint32{pointwiseThreads, 1, 1},
		Args: []Arg{Ptr(o.X), Ptr(o.Share), Ptr(o.Out), I32(o.D), I32(o.TopK)},
	}}
}
