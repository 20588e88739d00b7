{
  "payloadType": "application/vnd.kiwi.item.v1+json",
  "signatures": [
    {
      "keyid": "0cb85f1796ef157f99d4c1f36de63801f42517c620840da2861c14f212bbf5e0",
      "sig": "2GdylcD2q6q9C2BByJuodKQN6neQHFHHE6ZK3EQCN+jz5n4m38H6GKu3NOlFurVW34HuQFiNYMvlL18/mi3mCw=="
    }
  ],
  "statement": {
    "item_id": "acme/deploy/env_diff",
    "item_type": "script",
    "metadata": {
      "author": "platform-runtime",
      "category": "acme/deploy",
      "description": "Compare two env files by key and report what is missing, extra or empty, without showing any value.",
      "imports": [
        "__future__",
        "argparse",
        "dataclasses",
        "pathlib",
        "re",
        "sys"
      ],
      "name": "env_diff",
      "permissions": [],
      "tags": [
        "deploy",
        "configuration",
        "environment-variables"
      ]
    },
    "registry": "kiwi",
    "signed_at": "2026-11-20T10:00:00Z",
    "version": "1.2.0"
  }
}
