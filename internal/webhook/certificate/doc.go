// Package certificate gives the webhook server its certificate, and the API
// server the authority to check it with, without any other program's help.
//
// One Secret in the manager's own namespace is the truth for all replicas:
//
//	ca.crt   the authorities to trust: the current one first, then former ones
//	         for as long as they are valid
//	tls.crt  the serving certificate, signed by the current authority
//	tls.key  its key
//
// An authority signs exactly one certificate and its key is thrown away at once:
// nobody can sign with it later, and whoever reads the Secret can pass for this
// webhook and nothing else. (Keeping the key in memory alone would not do: two
// replicas answer for one Service, so they have to agree.) The price is that
// every renewal changes the bundle, so a renewal goes in two steps:
//
//	Secret written (new certificate, bundle of new and old authority)
//	  → bundle written into the webhook configurations
//	    → new certificate served
//
// Each replica serves a certificate only once the configurations hold its
// authority, and serves the one before until then, so that at every moment what
// is served is trusted. Any replica may take either step; a write carries the
// resourceVersion it was decided on, so that of two replicas one wins and the
// other follows.
package certificate
