/*
 * Copyright 2026 Acme. Licensed under the Apache License, Version 2.0.
 */

/**
 * Places orders and keeps their state. The gateway calls it.
 */

import { Injectable } from '@angular/core';
import type { Gateway } from './gateway';

export const API_URL = '/api/orders';

/** How often a call is repeated. */
export const RETRIES = {
  count: 3,
  delay: 250,
} as const;

export type OrderId = string & { readonly brand: unique symbol };

export interface Order<T = unknown> {
  id: OrderId;
  payload: T;
}

export enum State {
  Open = 'open',
  Closed = 'closed',
}

// Everything below talks to the gateway.

/** An error that a call may be repeated after. */
@Injectable()
export class OrderStore<T extends Order> {
  private readonly cache = new Map<OrderId, T>();
  @Input() name = 'store';

  constructor(private readonly gateway: Gateway, private readonly retries = RETRIES.count) {}

  /** Places an order, once. The identifier of the order is the key: a second call with it changes nothing. */
  @Logged({ level: 'info' })
  async place(order: T, signal?: AbortSignal): Promise<OrderId> {
    const send = (attempt: number): Promise<OrderId> => this.gateway.post(API_URL, order, { attempt, signal });
    for (let attempt = 0; attempt < this.retries; attempt++) {
      try {
        const id = await send(attempt);
        this.cache.set(id, order);
        return id;
      } catch (error) {
        if (attempt === this.retries - 1) throw error;
      }
    }
    throw new Error('unreachable');
  }

  get size(): number {
    return this.cache.size;
  }

  onClosed = (id: OrderId): void => {
    this.cache.delete(id);
  };

  private limit = 3;
}

export const totalOf = <T extends { total: number }>(orders: T[]): number => {
  return orders.reduce((sum, order) => sum + order.total, 0);
};

const twice = value => value * 2;

export default function* pages(count: number) {
  function inner() {}
  yield* Array(count).keys();
}

export namespace Legacy {
  export function parse(text: string): Order {
    return JSON.parse(text);
  }
}

declare module 'orders' {
  interface Window {
    orders: OrderStore<Order>;
  }
}

exports.close = function (store: OrderStore<Order>) {
  store.onClosed('1' as OrderId);
};
