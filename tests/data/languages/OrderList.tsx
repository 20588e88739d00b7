import React, { useState } from 'react';
import { Order } from './orders';

type Props = { orders: Order[]; onOpen?: (order: Order) => void };

/** A list of orders. */
export const OrderList: React.FC<Props> = ({ orders, onOpen }) => {
  const [open, setOpen] = useState<string | null>(null);
  const toggle = (order: Order) => {
    setOpen(order.id);
    onOpen?.(order);
  };
  return (
    <ul>
      {orders.map(order => (
        <li key={order.id} onClick={() => toggle(order)}>
          {open === order.id ? <OrderDetails order={order} /> : order.id}
        </li>
      ))}
    </ul>
  );
};

function OrderDetails({ order }: { order: Order }) {
  return <pre>{JSON.stringify(order, null, 2)}</pre>;
}

export const Cached = React.memo(
  React.forwardRef<HTMLUListElement, Props>((props, ref) => <OrderList {...props} />),
);

export class Boundary extends React.Component<{ children: React.ReactNode }> {
  render() {
    return this.props.children;
  }
}
