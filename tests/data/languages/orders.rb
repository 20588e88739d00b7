# frozen_string_literal: true

# Keeps orders by their key.

require 'json'
require_relative 'line'

module Acme
  LIMIT = 3

  # A line of an order.
  Line = Struct.new(:name, :count)

  # Keeps orders. The comment is long, so that the class is too large to stay in one passage, and each of its methods gets
  # one of its own, as the methods of large classes do.
  class Store < Base
    include Enumerable
    attr_reader :orders

    # Makes a store.
    def initialize(limit: LIMIT)
      @limit = limit
      @orders = {}
    end

    def self.load(path)
      new.tap { |store| JSON.parse(File.read(path)).each { |key, order| store.put(key, order) } }
    end

    # Keeps an order,
    # unless the store is full.
    def put(key, order = nil, *rest, **options, &block)
      raise 'full' if full?

      @orders[key] = order || block.call(*rest, **options)
    end

    def full? = @orders.size >= @limit

    class << self
      def empty
        new(limit: 0)
      end
    end

    class Error < StandardError; end
  end

  module Helpers
    module_function

    def total(orders)
      orders.sum { |order| order[:count] }
    end
  end
end

class Acme::Report
  def to_s = 'report'
end

def main
  puts Acme::Store.load(ARGV.first).full?
end

main if $PROGRAM_NAME == __FILE__
