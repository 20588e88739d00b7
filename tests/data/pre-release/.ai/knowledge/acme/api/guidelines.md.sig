{
  "payloadType": "application/vnd.kiwi.item.v1+json",
  "signatures": [
    {
      "keyid": "0cb85f1796ef157f99d4c1f36de63801f42517c620840da2861c14f212bbf5e0",
      "sig": "UkO1I9XObvnfqjQdmu3X7/ucGZj6dZAXFsoLQyiPMXaRdUEMRmBhHHkwMNTZhG+IR3PDxNpCDSKzjnxJeh8VDQ=="
    }
  ],
  "statement": {
    "item_id": "acme/api/guidelines",
    "item_type": "knowledge",
    "metadata": {
      "author": "developer-experience",
      "category": "acme/api",
      "description": "Compatibility, versions, errors, paging, idempotency, money and time in Acme's HTTP interfaces.",
      "name": "guidelines",
      "tags": [
        "api",
        "http",
        "openapi",
        "compatibility",
        "pagination",
        "idempotency"
      ],
      "title": "HTTP API guidelines"
    },
    "registry": "kiwi",
    "signed_at": "2026-11-20T10:00:00Z",
    "version": "2.3.0"
  }
}
