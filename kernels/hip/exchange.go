package hip

import "fmt"

// MostRanks is how many GPUs compute one pass together at most.
const MostRanks = 8

// Ranks are GPUs that compute one pass together, as one of them sees them. Memory of
// inboxes is what driver.Device.AllocFine gives, zero at first.
type Ranks struct {
	Rank, Count int
	Few         [MostRanks]Address // of each rank: [2][Count][FewSlot] numbers of 8 bytes that ranks write
	FewSlot     int
	Many        [MostRanks]Address // f32 [2][Count][ManySlot], and marks behind: [Ranks.ManyBytes]
	ManySlot    int
	State       Address // u32 [2] of this rank: exchanges so far, and whether one was given up
	Lost        Address // u32 of the host: the rank that was waited for in vain, plus 1
	Patience    int     // how often a wait looks, at most
}

// ExchangeFile is the source of what ranks do together. Of a pass, all launches of it or
// none are repeated, in their order.
const ExchangeFile = "exchange.hip"

// exchangeBlocks is EX_BLOCKS of exchange.hip.
const exchangeBlocks = 512

// FewBytes and ManyBytes return what the inboxes of one rank take.
func (r *Ranks) FewBytes() int64 { return 16 * int64(r.Count) * int64(r.FewSlot) }

// ManyBytes is FewBytes of the other inbox.
func (r *Ranks) ManyBytes() int64 { return 8 * int64(r.Count) * (int64(r.ManySlot) + exchangeBlocks) }

// unit is what exchanges among so many ranks are compiled as.
func (r *Ranks) unit(half bool) Unit {
	return Unit{ExchangeFile, fmt.Sprintf("EX_RANKS=%d EX_HALF=%d", r.Count, digit(half))}
}

// inboxes are the arguments that name one kind of them.
func inboxes(all *[MostRanks]Address) (args []Arg) {
	for _, a := range all {
		args = append(args, Ptr(a))
	}
	return args
}

// AllReduce adds what all ranks have of N numbers, in the order of ranks, and to that
// Residual, if any:
//
//	Out[i] = Residual[i] + (Own of rank 0 [i] + Own of rank 1 [i] + ...)
//
// All ranks get the same bits where their residuals have. Number counts the exchanges of a
// pass, from 1 on; the ranks of one exchange have one number. Out may be Own, or Residual.
type AllReduce struct {
	*Ranks
	Number             int
	N                  int // numbers; a multiple of 4 where Many is set
	Out, Residual, Own Address
	// Many takes the way of many numbers: two launches, bound by the link's bandwidth.
	Many bool
	// Half has many numbers rounded to half precision on their way, with a power of two for
	// each 32, of which N is a multiple: an error of 2^-11 of the largest of them.
	Half bool
}

// Calls returns the launches.
func (o *AllReduce) Calls(t Target) []Call {
	r := o.Ranks
	if !o.Many {
		return []Call{r.exchange(t, o.Number, o.N, []Arg{Ptr(o.Out), Ptr(o.Residual), Ptr(o.Own), I32(o.N), I32(0), I32(0), I32(0)})}
	}
	if o.N%4 != 0 || o.Half && o.N%32 != 0 || o.N > r.ManySlot {
		panic(fmt.Sprintf("hip: %d numbers of an inbox of %d", o.N, r.ManySlot))
	}
	grid := [3]uint32{uint32(min(ceil(o.N, 4*256), exchangeBlocks)), 1, 1}
	send := []Arg{Ptr(o.Own), I64(int64(o.N)), I64(int64(r.ManySlot)), I32(r.Rank), I32(o.Number), Ptr(r.State)}
	sum := []Arg{Ptr(o.Out), Ptr(o.Residual), Ptr(o.Own), I64(int64(o.N)), I64(int64(r.ManySlot)), I32(r.Rank), I32(o.Number), I32(r.Patience), Ptr(r.State), Ptr(r.Lost)}
	return []Call{
		{Early: true, Unit: r.unit(o.Half), Symbol: "nstf_exchange_send", Grid: grid, Block: [3]uint32{256, 1, 1}, Args: append(send, inboxes(&r.Many)...)},
		{Early: true, Unit: r.unit(o.Half), Symbol: "nstf_exchange_sum", Grid: grid, Block: [3]uint32{256, 1, 1}, Args: append(sum, inboxes(&r.Many)...)},
	}
}

// exchange is a launch for few numbers, of which a rank has most at most.
func (r *Ranks) exchange(t Target, number, most int, args []Arg) Call {
	if most+most%2 > r.FewSlot || r.FewSlot%2 != 0 {
		panic(fmt.Sprintf("hip: %d numbers of an inbox of %d", most, r.FewSlot))
	}
	args = append(args, I64(int64(r.FewSlot)), I32(r.Rank), I32(number), I32(r.Patience), Ptr(r.State), Ptr(r.Lost))
	const together = 4 // blocks of a unit that every target runs at once
	return Call{Early: true, Unit: r.unit(false), Symbol: "nstf_exchange", Grid: [3]uint32{uint32(min(ceil(most, 2*256), together*t.Units)), 1, 1}, Block: [3]uint32{256, 1, 1},
		Args: append(args, inboxes(&r.Few)...)}
}

// AllGather lays what ranks have of rows side by side: Out[T][Units*Unit], of which a rank
// has the columns of [Ranks.Columns] in Own.
type AllGather struct {
	*Ranks
	Number, T   int
	Units, Unit int
	Out, Own    Address
}

// Columns returns the columns of a rank, of units in all that are not cut.
func (r *Ranks) Columns(rank, units, unit int) (lo, hi int) {
	return units * rank / r.Count * unit, units * (rank + 1) / r.Count * unit
}

// Calls returns the launch.
func (o *AllGather) Calls(t Target) []Call {
	most := 0
	for i := range o.Count {
		lo, hi := o.Columns(i, o.Units, o.Unit)
		most = max(most, o.T*(hi-lo))
	}
	return []Call{o.exchange(t, o.Number, most, []Arg{Ptr(o.Out), Ptr(0), Ptr(o.Own), I32(0), I32(o.T), I32(o.Units), I32(o.Unit)})}
}

// EndExchanges ends a pass of so many exchanges.
type EndExchanges struct {
	*Ranks
	Exchanges int
}

// Calls returns the launch.
func (o *EndExchanges) Calls(Target) []Call {
	return []Call{{Early: true, Unit: o.unit(false), Symbol: "nstf_exchange_end", Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{64, 1, 1}, Args: []Arg{Ptr(o.State), I32(o.Exchanges)}}}
}
