/* SPDX-License-Identifier: MIT */

/* Keeps orders in a ring. */

#include <stdio.h>
#include "orders.h"

#define LIMIT 3
/* The larger of two values. */
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/** A line of an order. */
struct line {
	const char *name;
	int count;
};

typedef struct order {
	struct line lines[LIMIT];
	int used;
} order_t;

enum state { OPEN, CLOSED };

static int used;

int total(const order_t *order);

/**
 * Adds a line to an order.
 * Returns how many it has.
 */
int add(order_t *order, struct line line);

/* Adds a line. */
int add(order_t *order, struct line line)
{
	if (order->used >= LIMIT)
		return -1;
	order->lines[order->used++] = line;
	return order->used;
}

static const char *name_of(const struct line *line)
{
	return line->name;
}

#ifdef DEBUG
static void dump(const order_t *order)
{
	for (int i = 0; i < order->used; i++)
		printf("%s\n", name_of(&order->lines[i]));
}
#endif

int total(const order_t *order)
{
	int sum = 0;
	for (int i = 0; i < order->used; i++)
		sum += order->lines[i].count;
	return MAX(sum, 0);
}
