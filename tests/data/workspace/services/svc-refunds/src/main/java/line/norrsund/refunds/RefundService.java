package line.norrsund.refunds;

import line.norrsund.refunds.client.LoyaltyClient;
import line.norrsund.refunds.client.PaymentReversals;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

/** Sees a refund through: computed, approved, reversed, paid. */
@Service
class RefundService {

    static final long APPROVAL_ABOVE = 500_000;

    private final RefundRepository repository;
    private final PaymentReversals payments;
    private final LoyaltyClient loyalty;

    RefundService(RefundRepository repository, PaymentReversals payments, LoyaltyClient loyalty) {
        this.repository = repository;
        this.payments = payments;
        this.loyalty = loyalty;
    }

    /** Starts paying, or waits for a second clerk above five thousand kroner unless the sailing was cancelled. */
    @Transactional
    Refund start(Refund computed) {
        if (computed.amount() > APPROVAL_ABOVE && computed.cause() != Cause.SAILING_CANCELLED) {
            return repository.save(computed.awaitingApproval());
        }
        return pay(computed);
    }

    /** A clerk cannot approve a refund that the same clerk asked for. */
    @Transactional
    Refund approve(Refund refund, String approver) {
        if (approver.equals(refund.requestedBy())) {
            throw new SamePerson(approver);
        }
        return pay(refund.approvedBy(approver));
    }

    private Refund pay(Refund refund) {
        loyalty.clawBack(refund);
        try {
            payments.reverse(refund);
            return repository.save(refund.paid());
        } catch (ReversalRefused refused) {
            return repository.save(refund.refusedOnce() ? refund.stuck(refused.getMessage()) : refund.retryLater());
        }
    }
}
