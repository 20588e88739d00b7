{
  "payloadType": "application/vnd.kiwi.item.v1+json",
  "signatures": [
    {
      "keyid": "0cb85f1796ef157f99d4c1f36de63801f42517c620840da2861c14f212bbf5e0",
      "sig": "GWK+TiX207wH4ObST6QOG4a0RtgZsYDSzEtJZ50G+0Qs8G8PuYcvTOO51sL6dMwRwZuxd1LqUsJQpyaIc+EQDg=="
    }
  ],
  "statement": {
    "item_id": "acme/deploy/rollback",
    "item_type": "directive",
    "metadata": {
      "author": "platform-runtime",
      "category": "acme/deploy",
      "context": {},
      "description": "Return a service to its previous version, check that data written meanwhile can be read, and confirm recovery.",
      "inputs": [
        {
          "description": "Service to bring back",
          "name": "service",
          "required": true,
          "type": "string"
        },
        {
          "description": "Version to return to; default is the one before the current",
          "name": "to_tag",
          "required": false,
          "type": "string"
        },
        {
          "description": "What was seen, in one sentence",
          "name": "reason",
          "required": true,
          "type": "string"
        }
      ],
      "limits": {
        "tokens": "30000",
        "turns": "15"
      },
      "model": {
        "tier": "general"
      },
      "name": "rollback",
      "outputs": [
        {
          "description": "UTC time at which the service met its SLO again",
          "name": "recovered_at"
        },
        {
          "description": "Build that was blocked",
          "name": "blocked_tag"
        }
      ],
      "permissions": [
        {
          "pattern": "acme/deploy/*",
          "resource": "tool",
          "verb": "execute"
        },
        {
          "pattern": "deploy-config/production/**",
          "resource": "file",
          "verb": "write"
        }
      ],
      "steps": [
        {
          "description": "Is there a faster way?",
          "name": "flag_first"
        },
        {
          "description": "Old code must be able to read the present schema.",
          "name": "schema_guard"
        },
        {
          "description": "While a canary runs, aborting is the rollback.",
          "name": "abort_canary"
        },
        {
          "description": "After 100% the pin has to change.",
          "name": "repin"
        },
        {
          "description": "Believe graphs, not commands.",
          "name": "confirm"
        },
        {
          "description": "Keep the bad build out.",
          "name": "hold"
        }
      ],
      "tags": []
    },
    "registry": "kiwi",
    "signed_at": "2026-11-20T10:00:00Z",
    "version": "1.6.0"
  }
}
