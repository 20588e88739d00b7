// Copyright 2026 Acme.

// Package orders keeps orders in memory. It is for tests.
package orders

import (
	"context"
	"errors"
)

// ErrClosed says that a store takes no more orders.
var ErrClosed = errors.New("closed")

const (
	Open State = iota
	Closed
)

// State is what an order is in.
type State int

type (
	// Line is one line of an order.
	Line struct {
		Name  string `json:"name"`
		Count int
	}

	Lines = []Line
)

// Store keeps orders by their key.
type Store[K comparable, V any] struct {
	orders map[K]V
	closed bool
}

// Reader reads.
type Reader interface {
	Read(ctx context.Context, key string) (Line, error)
}

// New returns an empty store.
func New[K comparable, V any]() *Store[K, V] {
	return &Store[K, V]{orders: map[K]V{}}
}

// Put keeps an order.
//
// It fails once the store is closed.
func (s *Store[K, V]) Put(ctx context.Context, key K, value V) error {
	check := func() error {
		if s.closed {
			return ErrClosed
		}
		return ctx.Err()
	}
	if err := check(); err != nil {
		return err
	}
	s.orders[key] = value
	return nil
}

func (l Line) String() string { return l.Name }

//go:noinline
func sum(lines ...Line) (total int) {
	for _, line := range lines {
		total += line.Count
	}
	return
}
