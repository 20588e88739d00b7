<?php

/**
 * This file is part of Acme. For the copyright see the file LICENSE.
 */

declare(strict_types=1);

namespace Acme\Orders;

use Acme\Base;
use function array_map;

/** What an order is in. */
enum State: string
{
    case Open = 'open';
    case Closed = 'closed';

    public function label(): string
    {
        return ucfirst($this->value);
    }
}

interface Store
{
    public function find(string $key): ?Order;
}

trait Logs
{
    protected array $lines = [];

    protected function log(string $line): void
    {
        $this->lines[] = $line;
    }
}

/**
 * Keeps orders. The comment is long, so that the class is too large to stay in one passage, and each of its methods gets
 * one of its own, as the methods of large classes do.
 */
#[Entity(table: 'orders')]
final class MemoryStore extends Base implements Store
{
    use Logs;

    public const LIMIT = 3;
    private array $orders = [];

    public function __construct(private readonly int $limit = self::LIMIT)
    {
    }

    /** Finds an order by its key. */
    #[Pure]
    public function find(string $key): ?Order
    {
        $this->log("find $key");

        return $this->orders[$key] ?? null;
    }

    public static function of(Order ...$orders): static
    {
        $store = new static(count($orders));
        array_map(fn (Order $order) => $store->orders[$order->key] = $order, $orders);

        return $store;
    }

    private int $calls = 0;
}

/** Returns what orders cost. */
function total(iterable $orders): int
{
    return array_sum(array_map(function ($order) {
        return $order->price;
    }, [...$orders]));
}
?>
<p><?= total([]) ?></p>
