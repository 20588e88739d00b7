// Copyright (c) Acme. All rights reserved.

using System;
using System.Collections.Generic;

namespace Acme.Orders
{
    /// <summary>What an order is in.</summary>
    public enum State { Open, Closed }

    public record Line(string Name, int Count);

    public interface IStore<T> where T : class
    {
        Task<T?> FindAsync(string key, CancellationToken token = default);
    }

    /// <summary>
    /// Keeps orders. The comment is long, so that the class is too large to stay in one passage, and each of its methods
    /// gets one of its own.
    /// </summary>
    [Serializable]
    public sealed class Store<T> : IStore<T> where T : class
    {
        private readonly Dictionary<string, T> orders = new();

        public int Limit { get; set; } = 3;

        public Store(int limit)
        {
            Limit = limit;
        }

        /// <summary>Finds an order.</summary>
        [Obsolete("use Get")]
        public async Task<T?> FindAsync(string key, CancellationToken token = default)
        {
            T? Local(string wanted) => orders.TryGetValue(wanted, out var order) ? order : null;
            await Task.Delay(1, token);
            return Local(key);
        }

        public int Count => orders.Count;

        public static Store<T> operator +(Store<T> left, Store<T> right) => left;

        private struct Entry
        {
            public string Key;
        }
    }

    public static class Extensions
    {
        public static string Shout(this string text) => text.ToUpperInvariant();
    }
}
