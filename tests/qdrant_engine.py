"""Qdrant's own engine, in process: the storage, filters, indexes and search of its server as the package has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import qdrant_edge as edge
from qdrant_client import models

_KINDS = {
    "keyword": edge.PayloadSchemaType.Keyword,
    "integer": edge.PayloadSchemaType.Integer,
    "datetime": edge.PayloadSchemaType.Datetime,
}


class Shard:
    """One collection of one shard. Takes and gives what the REST interface does."""

    def __init__(self, folder: Path, wanted: models.CreateCollection) -> None:
        self.wanted = wanted
        self.indexes: dict[str, str] = {}
        dense = {
            name: edge.EdgeVectorParams(params.size, getattr(edge.Distance, params.distance.value))
            for name, params in wanted.vectors.items()
        }
        modifier = {models.Modifier.IDF: edge.Modifier.Idf}
        sparse = {
            name: edge.EdgeSparseVectorParams(modifier=modifier.get(params.modifier))
            for name, params in (wanted.sparse_vectors or {}).items()
        }
        folder.mkdir(parents=True)
        self._shard = edge.EdgeShard.create(str(folder), edge.EdgeConfig(vectors=dense, sparse_vectors=sparse))

    def close(self) -> None:
        self._shard.close()

    def optimize(self) -> None:
        """Build what the server's optimizer would build in the background."""
        self._shard.optimize()

    def info(self) -> dict[str, Any]:
        plain = {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000}
        optimizer = {"deleted_threshold": 0.2, "vacuum_min_vector_number": 1000, "default_segment_number": 0,
                     "flush_interval_sec": 5}  # fmt: skip
        config = {
            "params": {"vectors": {n: p.model_dump(mode="json") for n, p in self.wanted.vectors.items()}},
            "hnsw_config": plain,
            "optimizer_config": optimizer,
            "metadata": self.wanted.metadata,
        }
        schema = {key: {"data_type": kind, "points": 0} for key, kind in self.indexes.items()}
        indexed = self._shard.info().indexed_vectors_count
        return {
            "status": "green",
            "optimizer_status": "ok",
            "segments_count": 1,
            "indexed_vectors_count": indexed,
            "config": config,
            "payload_schema": schema,
        }

    def index(self, key: str, kind: str) -> None:
        self._shard.update(edge.UpdateOperation.create_field_index(key, _KINDS[kind]))
        self.indexes[key] = kind

    def retrieve(self, wanted: models.PointRequest) -> list[dict[str, Any]]:
        found = self._shard.retrieve(list(wanted.ids), wanted.with_payload, False)
        return [_record(point) for point in found]

    def scroll(self, wanted: models.ScrollRequest) -> tuple[list[dict[str, Any]], Any]:
        request = edge.ScrollRequest(
            offset=wanted.offset,
            limit=wanted.limit or 10,
            filter=_filter(wanted.filter),
            with_payload=wanted.with_payload,
        )
        found, following = self._shard.scroll(request)
        return [_record(point) for point in found], following and str(following)

    def count(self, wanted: models.CountRequest) -> int:
        return self._shard.count(edge.CountRequest(bool(wanted.exact), _filter(wanted.filter)))

    def facet(self, wanted: models.FacetRequest) -> list[dict[str, Any]]:
        asked = edge.FacetRequest(wanted.key, wanted.limit or 10, bool(wanted.exact), _filter(wanted.filter))
        return [{"value": hit.value, "count": hit.count} for hit in self._shard.facet(asked)]

    def query(self, wanted: models.QueryRequest) -> list[dict[str, Any]]:
        params = wanted.params or models.SearchParams()
        query = wanted.query.nearest if isinstance(wanted.query, models.NearestQuery) else wanted.query
        request = edge.QueryRequest(
            limit=wanted.limit or 10,
            query=edge.Query.Nearest(_vector(query), wanted.using),
            filter=_filter(wanted.filter),
            score_threshold=wanted.score_threshold,
            with_payload=wanted.with_payload or False,
            params=edge.SearchParams(hnsw_ef=params.hnsw_ef, exact=bool(params.exact)),
        )
        return [_record(point) | {"score": point.score, "version": 0} for point in self._shard.query(request)]

    def update(self, operation: Any) -> None:
        self._shard.update(_operation(operation))


def _operation(operation: Any) -> edge.UpdateOperation:
    if isinstance(operation, models.UpsertOperation):
        wanted = operation.upsert
        points = [
            edge.Point(p.id, {name: _vector(v) for name, v in (p.vector or {}).items()}, p.payload or {})
            for p in wanted.points
        ]
        return edge.UpdateOperation.upsert_points(points, condition=_filter(wanted.update_filter))
    if isinstance(operation, models.DeleteOperation):
        return edge.UpdateOperation.delete_points_by_filter(_filter(operation.delete.filter))
    wanted = operation.set_payload
    return edge.UpdateOperation.set_payload_by_filter(_filter(wanted.filter), wanted.payload)


def _vector(vector: Any) -> Any:
    return edge.SparseVector(vector.indices, vector.values) if isinstance(vector, models.SparseVector) else vector


def _record(point: Any) -> dict[str, Any]:
    return {"id": str(point.id), "payload": point.payload}


def _filter(condition: models.Filter | None) -> edge.Filter | None:
    if condition is None:
        return None
    clauses = {name: getattr(condition, name) for name in ("must", "should", "must_not")}
    return edge.Filter(**{name: [_condition(c) for c in clause] for name, clause in clauses.items() if clause})


def _condition(condition: Any) -> Any:
    if isinstance(condition, models.Filter):
        return _filter(condition)
    if isinstance(condition, models.HasIdCondition):
        return edge.HasIdCondition(set(condition.has_id))
    match, limits = condition.match, condition.range
    if isinstance(match, models.MatchValue):
        return edge.FieldCondition(condition.key, match=edge.MatchValue(match.value))
    if isinstance(match, models.MatchAny):
        return edge.FieldCondition(condition.key, match=edge.MatchAny(match.any))
    sides = {side: getattr(limits, side) for side in ("gte", "gt", "lte", "lt") if getattr(limits, side) is not None}
    if isinstance(limits, models.DatetimeRange):
        moments = {side: moment.isoformat() for side, moment in sides.items()}
        return edge.FieldCondition(condition.key, range=edge.RangeDateTime(**moments))
    return edge.FieldCondition(condition.key, range=edge.RangeFloat(**sides))
