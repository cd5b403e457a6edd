package gpu

import (
	"errors"
	"fmt"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// growPool adds pages to the pool: as many as a whole context takes, or a few
// where there is no room for so many. Whatever was captured with the old
// addresses is forgotten.
func (e *Engine) growPool() error {
	var err error
	for _, more := range []int{int(pagesOf(e.context)), 16, 1} {
		if err = e.movePool(e.pool.pages + more); !errors.Is(err, driver.ErrMemory) {
			return err
		}
	}
	return fmt.Errorf("no memory for another page of keys and values beyond %d: %w", e.pool.pages, err)
}

// movePool copies the pool to one of so many pages.
func (e *Engine) movePool(pages int) error {
	p := &e.pool
	layers := cacheLayers(e.g, p.layers[0].Format)
	var size arena
	placePages(layers, pages, &size)
	buffer, err := e.m.alloc(size.used)
	if err != nil {
		return err
	}
	placePages(layers, pages, &arena{base: buffer.Address})
	for i := range layers {
		if err := e.movePlanes(&layers[i], &p.layers[i], p.pages); err != nil {
			return err
		}
	}
	if err := e.m.stream.Wait(); err != nil {
		return err
	}
	if p.pages > 0 {
		if err := e.m.device.Free(p.buffer); err != nil {
			return err
		}
	}
	p.mu.Lock()
	for i := pages - 1; i >= p.pages; i-- {
		p.free = append(p.free, int32(i))
	}
	p.mu.Unlock()
	p.layers, p.buffer, p.pages = layers, buffer, pages
	return e.forget()
}

// movePlanes copies the first pages of a layer.
func (e *Engine) movePlanes(to, from *hip.KV, pages int) error {
	dst, src := to.Base, from.Base
	for _, n := range from.Planes() {
		size := n * int64(pages)
		if err := e.m.stream.Copy(driver.Buffer{Address: dst, Size: size}, driver.Buffer{Address: src, Size: size}, size); err != nil {
			return err
		}
		dst += hip.Address(n * int64(to.Pages))
		src += hip.Address(n * int64(from.Pages))
	}
	return nil
}

// growTable makes room for twice as many caches. The caches send their pages
// again when they are next used.
func (e *Engine) growTable() error {
	p := &e.pool
	slots := max(2*p.slots, minSlots)
	var size arena
	size.ints(slots * p.tablePages)
	e.placeLengths(&size, slots)
	table, err := e.m.alloc(size.used)
	if err != nil {
		return err
	}
	if err := e.m.stream.Wait(); err != nil {
		return err
	}
	if p.slots > 0 {
		if err := e.m.device.Free(p.table); err != nil {
			return err
		}
	}
	a := arena{base: table.Address}
	a.ints(slots * p.tablePages)
	e.placeLengths(&a, slots)
	p.mu.Lock()
	for i := slots - 1; i >= p.slots; i-- {
		p.idle = append(p.idle, int32(i))
	}
	p.mu.Unlock()
	p.table, p.slots = table, slots
	return e.forget()
}

// minSlots is how many caches the table has room for at first.
const minSlots = 4

// forget drops what was captured with addresses that are not valid any more.
func (e *Engine) forget() error {
	e.growth++
	for key, g := range e.graphs {
		delete(e.graphs, key)
		if err := g.Free(); err != nil {
			return err
		}
	}
	return nil
}
