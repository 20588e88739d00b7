'use strict';
// Charges orders by their weight.

const { readFile } = require('node:fs/promises');
const LIMIT = 3;

/** The rates of each country, by the kilogram. */
const rates = {
  is: 12,
  ee: 9,
};

/** Charges orders. */
class Charger extends Base {
  #rate = 1;
  static limit = LIMIT;

  constructor(rate) {
    super();
    this.#rate = rate;
  }

  /**
   * Returns what an order costs. A long comment, so that the class is too large to stay in one passage, and each method
   * gets one of its own, as the methods of large classes do. What it says is of no further interest to anybody here.
   */
  async charge(order, { dry = false } = {}) {
    const weigh = async () => {
      return order.lines.reduce((sum, line) => sum + line.weight * line.count, 0);
    };
    const total = (await weigh()) * this.#rate;
    return dry ? total : this.save(order, total);
  }

  static *all(orders) {
    for (const order of orders) yield new Charger(rates[order.country]).charge(order);
  }

  save = async (order, total) => {
    await this.store.put(order.id, { ...order, total });
    return total;
  };

  count = 0;
}

function load(path) {
  return readFile(path, 'utf8').then(JSON.parse);
}

const Badge = ({ order }) => <span className="badge">{order.total}</span>;

Charger.prototype.refund = function (order) {
  return -order.total;
};

module.exports.load = (path) => load(path);

describe('charging', () => {
  it('costs nothing without lines', async () => {
    expect(await new Charger(2).charge({ lines: [] })).toBe(0);
  });
});

module.exports = { Charger, Badge };
