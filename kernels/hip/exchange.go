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
	Many        [MostRanks]Address // f32 [2][Count][ManySlot], and u32 [2][Count] behind: [Ranks.ManyBytes]
	ManySlot    int                // a multiple of 4
	State       Address            // u32 [2] of this rank: exchanges so far, and whether one was given up
	Lost        Address            // u32 of the host: the rank that was waited for in vain, plus 1
	Patience    int                // how often a wait looks, at most; 0: nobody waits
}

// ExchangeFile is the source of what ranks do together and nothing else. Of a pass, all
// launches that send or receive are repeated, in their order, or where nobody waits.
const ExchangeFile = "exchange.hip"

// FewBytes and ManyBytes return what the inboxes of one rank take.
func (r *Ranks) FewBytes() int64 { return 16 * int64(r.Count) * int64(r.FewSlot) }

// ManyBytes is FewBytes of the other inbox.
func (r *Ranks) ManyBytes() int64 { return 8 * int64(r.Count) * (int64(r.ManySlot) + 1) }

// An Exchange is one of a pass, whose Number counts from 1 on: the ranks of one exchange have
// one number. Who sends numbers ([Send], [Matvec], [Matmul]) does not wait, who receives them
// ([Norm], [Matvec]) does.
type Exchange struct {
	*Ranks
	Number int
	// Many takes the way of many numbers, bound by the link's bandwidth: rows whose length is
	// a multiple of 4.
	Many bool
	// Half has many numbers rounded to half precision on their way, with a power of two for
	// each 32, of which a row has whole ones: an error of 2^-11 of the largest of them.
	Half bool
	// Left has what is sent of many numbers stay in this rank's inbox, from where [Exchange.Transfers]
	// say how it goes to the others, without a unit of the device. A [Meet] follows, and who receives
	// them does not wait. Parity is the number's: passes have an even number of such exchanges.
	Left bool
}

// A Transfer is bytes of an exchange that go from this rank's inbox to another's.
type Transfer struct {
	To, From Address
	Bytes    int64
}

// Transfers returns how n numbers that were left go to the others.
func (x *Exchange) Transfers(n int) (all []Transfer) {
	at := 4 * int64(x.slot()) * int64(x.Number%2*x.Count+x.Rank)
	for r := range x.Count {
		if r == x.Rank {
			continue
		}
		move := func(from, bytes int64) {
			all = append(all, Transfer{x.Ranks.Many[r] + Address(at+from), x.Ranks.Many[x.Rank] + Address(at+from), bytes})
		}
		if !x.Half {
			move(0, 4*int64(n))
			continue
		}
		move(0, 2*int64(n))
		move(2*int64(x.slot()), int64(n)/8) // powers of two
	}
	return all
}

// defines are those that what sends or receives is compiled with.
func (x *Exchange) defines() string {
	d := fmt.Sprintf("EX_RANKS=%d EX_HALF=%d", x.Count, digit(x.Half))
	if x.Left {
		d += " EX_LEFT=1"
	}
	return d
}

// unit is what exchanges alone are compiled as.
func (x *Exchange) unit() Unit { return Unit{ExchangeFile, x.defines()} }

// slot is how many numbers a slot holds.
func (x *Exchange) slot() int {
	if x.Many {
		return x.ManySlot
	}
	return x.FewSlot
}

// all is where the inboxes of all ranks lie.
func (x *Exchange) all() *[MostRanks]Address {
	if x.Many {
		return &x.Ranks.Many
	}
	return &x.Ranks.Few
}

// holds panics where an inbox does not hold rows of d numbers.
func (x *Exchange) holds(rows, d int) {
	n := rows * d
	if x.Many && (d%4 != 0 || x.Half && d%32 != 0) || n+n%2 > x.slot() || x.slot()%2 != 0 {
		panic(fmt.Sprintf("hip: %d rows of %d numbers in an inbox of %d", rows, d, x.slot()))
	}
}

// sends are the arguments of who sends numbers, from the slot on.
func (x *Exchange) sends() []Arg {
	args := []Arg{I64(int64(x.slot())), I32(x.Rank), I32(x.Number), Ptr(x.State)}
	for _, a := range x.all() {
		args = append(args, Ptr(a))
	}
	return args
}

// receives are the arguments of who receives them.
func (x *Exchange) receives() []Arg {
	return []Arg{I64(int64(x.slot())), I32(x.Rank), I32(x.Number), I32(x.Patience), Ptr(x.State), Ptr(x.Lost), Ptr(x.all()[x.Rank])}
}

// Send sends Own[T][D] to the others, and of many numbers, whose [Mark] has to follow, to this rank too. Residual, where
// given, is added to Own before: of few numbers.
type Send struct {
	Exchange      Exchange
	T, D          int
	Own, Residual Address
}

// Calls returns the launch.
func (o *Send) Calls(t Target) []Call {
	x := &o.Exchange
	x.holds(o.T, o.D)
	if !x.Many {
		return []Call{{Early: true, Unit: x.unit(), Symbol: "nstf_send", Grid: fewGrid(t, o.T*o.D), Block: [3]uint32{256, 1, 1},
			Args: append([]Arg{Ptr(o.Own), Ptr(o.Residual), I32(o.T * o.D)}, x.sends()...)}}
	}
	if o.Residual != 0 {
		panic("hip: a residual among many numbers that are sent")
	}
	n := o.T * o.D
	return []Call{{Early: true, Unit: x.unit(), Symbol: "nstf_send_many", Grid: manyGrid(n), Block: [3]uint32{256, 1, 1},
		Args: append([]Arg{Ptr(o.Own), I64(int64(n))}, x.sends()...)}}
}

// Mark tells the others that many numbers were sent, behind who sent them.
type Mark struct{ Exchange Exchange }

// Calls returns the launch.
func (o *Mark) Calls(Target) []Call {
	x := &o.Exchange
	return []Call{{Early: true, Unit: x.unit(), Symbol: "nstf_mark", Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{64, 1, 1}, Args: x.sends()}}
}

// Meet is a Mark that waits for those of all ranks, behind the transfers of numbers that were left.
type Meet struct{ Exchange Exchange }

// Calls returns the launch.
func (o *Meet) Calls(Target) []Call {
	x := &o.Exchange
	args := x.receives()
	args = args[:len(args)-1]
	for _, a := range x.all() {
		args = append(args, Ptr(a))
	}
	return []Call{{Early: true, Unit: x.unit(), Symbol: "nstf_meet", Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{64, 1, 1}, Args: args}}
}

// fewGrid is the grid of a launch with few numbers, all blocks of which run at once.
func fewGrid(t Target, n int) [3]uint32 {
	const together = 4 // blocks of a unit that every target runs at once
	return [3]uint32{uint32(min(ceil(n, 2*256), together*t.Units)), 1, 1}
}

// manyGrid is the grid of a launch with many numbers.
func manyGrid(n int) [3]uint32 { return [3]uint32{uint32(ceil(n, 4*256)), 1, 1} }

// AllReduce adds what all ranks have of numbers, T rows of D, in the order of ranks, and to
// that Residual, if any:
//
//	Out[i] = Residual[i] + (Own of rank 0 [i] + Own of rank 1 [i] + ...)
//
// All ranks get the same bits where their residuals have. Out may be Own, or Residual. Few
// numbers are one launch, many three.
type AllReduce struct {
	Exchange           Exchange
	T, D               int
	Out, Residual, Own Address
}

// Calls returns the launches.
func (o *AllReduce) Calls(t Target) []Call {
	x := &o.Exchange
	x.holds(o.T, o.D)
	if !x.Many {
		return []Call{x.together(t, o.T*o.D, []Arg{Ptr(o.Out), Ptr(o.Residual), Ptr(o.Own), I32(o.T * o.D), I32(0), I32(0), I32(0)})}
	}
	n := o.T * o.D
	calls := append((&Send{Exchange: *x, T: o.T, D: o.D, Own: o.Own}).Calls(t), (&Mark{*x}).Calls(t)...)
	return append(calls, Call{Early: true, Unit: x.unit(), Symbol: "nstf_exchange_sum", Grid: manyGrid(n), Block: [3]uint32{256, 1, 1},
		Args: append([]Arg{Ptr(o.Out), Ptr(o.Residual), I64(int64(n))}, x.receives()...)})
}

// together is a launch that sends and receives few numbers, of which a rank has most at most.
func (x *Exchange) together(t Target, most int, args []Arg) Call {
	x.holds(1, most)
	args = append(args, I64(int64(x.FewSlot)), I32(x.Rank), I32(x.Number), I32(x.Patience), Ptr(x.State), Ptr(x.Lost))
	for _, a := range x.all() {
		args = append(args, Ptr(a))
	}
	return Call{Early: true, Unit: x.unit(), Symbol: "nstf_exchange", Grid: fewGrid(t, most), Block: [3]uint32{256, 1, 1}, Args: args}
}

// AllGather lays what ranks have of rows side by side: Out[T][Units*Unit], of which a rank
// has the columns of [Ranks.Columns] in Own.
type AllGather struct {
	Exchange    Exchange // of few numbers
	T           int
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
	for i := range o.Exchange.Count {
		lo, hi := o.Exchange.Columns(i, o.Units, o.Unit)
		most = max(most, o.T*(hi-lo))
	}
	return []Call{o.Exchange.together(t, most, []Arg{Ptr(o.Out), Ptr(0), Ptr(o.Own), I32(0), I32(o.T), I32(o.Units), I32(o.Unit)})}
}

// EndExchanges ends a pass of so many exchanges.
type EndExchanges struct {
	*Ranks
	Exchanges int
}

// Calls returns the launch.
func (o *EndExchanges) Calls(Target) []Call {
	x := Exchange{Ranks: o.Ranks}
	return []Call{{Early: true, Unit: x.unit(), Symbol: "nstf_exchange_end", Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{64, 1, 1}, Args: []Arg{Ptr(o.State), I32(o.Exchanges)}}}
}
