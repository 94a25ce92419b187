package populate

// What decided: the constants of Decision.Why, in the order of the rules.
const (
	WhyGone            = "claim gone: temporaries go"
	WhyPartial         = "half-filled volume kept by its policy is marked"
	WhyNotAsked        = "claim asks for nothing here"
	WhySettled         = "settled"
	WhyImpostor        = "population of another claim goes"
	WhyPopulationGoing = "population of another claim is going"
	WhyGiveBack        = "foreign volume is given back"
	WhyBoundElsewhere  = "claim is bound to a volume that was not filled for it"
	WhyBinding         = "claim is being bound to the filled volume"
	WhySucceeded       = "claim is bound to the filled volume"
	WhyLeftBehind      = "temporaries of ended attempts go"

	WhyFailed       = "population failed"
	WhyKeepWorker   = "failed worker is kept for its log"
	WhyBackOff      = "back-off between attempts"
	WhyClearing     = "last attempt is cleared away"
	WhyUnselectNode = "node is given back to the scheduler"
	WhyNextAttempt  = "next attempt"
	WhyAttemptEnded = "attempt ended"

	WhyWorkerPending   = "worker has not started"
	WhyWorkerRunning   = "worker runs"
	WhyHandOverPrime   = "worker succeeded: prime goes, held by the worker"
	WhyHandOverRebind  = "worker succeeded: volume is handed over"
	WhyWorkerOutdated  = "worker that cannot start was made from an older source or populator"
	WhyRevoked         = "grant was revoked while the worker runs"
	WhyWorkerUntrusted = "worker is not of the recorded attempt"

	WhyPrimePending = "prime waits for its volume"
	WhyNodeGone     = "provisioner gave the node back"
	WhyPrimeForeign = "prime is bound to a foreign volume"
	WhyPrimeGoing   = "prime is being deleted"
	WhyCreateScout  = "prime needs a node: scout is created"
	WhyScoutDone    = "scout goes"
	WhyTemplate     = "template yields no worker"
	WhyCreateWorker = "prime is bound: worker is created"
	WhyRefused      = "the API server refused the write"
	WhyLost         = "a temporary of the attempt vanished"
	WhyNameTaken    = "name is taken"

	WhyWaiting          = "admission: claim has to wait"
	WhyCreatePopulation = "admitted: population is created"
	WhyFirstAttempt     = "admitted: first attempt is allocated"
	WhyCreatePrime      = "admitted: prime is created"
)
