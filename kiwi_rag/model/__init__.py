"""The records that the packages exchange: frozen values without behaviour.

Imports only the errors from Kiwi. Vectors are ``numpy.ndarray`` of ``float32``; numpy is only named in annotations, so
that importing this package stays cheap.
"""

from kiwi_rag.model.exchanges import Exchange as Exchange
from kiwi_rag.model.items import Admission as Admission
from kiwi_rag.model.items import Document as Document
from kiwi_rag.model.items import EmbeddingRecord as EmbeddingRecord
from kiwi_rag.model.items import Envelope as Envelope
from kiwi_rag.model.items import Finding as Finding
from kiwi_rag.model.items import Item as Item
from kiwi_rag.model.items import ItemState as ItemState
from kiwi_rag.model.items import Passage as Passage
from kiwi_rag.model.items import RenderedLine as RenderedLine
from kiwi_rag.model.items import Section as Section
from kiwi_rag.model.items import Severity as Severity
from kiwi_rag.model.items import StoredItem as StoredItem
from kiwi_rag.model.items import Vector as Vector
from kiwi_rag.model.items import Visibility as Visibility
from kiwi_rag.model.items import content_digest as content_digest
from kiwi_rag.model.items import has_errors as has_errors
from kiwi_rag.model.items import sha256_hex as sha256_hex
from kiwi_rag.model.refs import ITEM_TYPES as ITEM_TYPES
from kiwi_rag.model.refs import ItemRef as ItemRef
from kiwi_rag.model.refs import ItemType as ItemType
from kiwi_rag.model.refs import check_item_id as check_item_id
from kiwi_rag.model.refs import fold_item_id as fold_item_id
from kiwi_rag.model.search import Candidate as Candidate
from kiwi_rag.model.search import Candidates as Candidates
from kiwi_rag.model.search import CollectionStatistics as CollectionStatistics
from kiwi_rag.model.search import Filters as Filters
from kiwi_rag.model.search import FusionMethod as FusionMethod
from kiwi_rag.model.search import FusionWeights as FusionWeights
from kiwi_rag.model.search import ItemScores as ItemScores
from kiwi_rag.model.search import RefusedHit as RefusedHit
from kiwi_rag.model.search import SearchExplanation as SearchExplanation
from kiwi_rag.model.search import SearchQuery as SearchQuery
from kiwi_rag.model.search import SearchReply as SearchReply
from kiwi_rag.model.search import SearchResult as SearchResult
from kiwi_rag.model.search import StoreQuery as StoreQuery
from kiwi_rag.model.search import TierOutcome as TierOutcome
from kiwi_rag.model.search import VersionConflict as VersionConflict
