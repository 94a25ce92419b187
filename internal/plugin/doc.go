// Package plugin calls plugins: programs that serve the contract
// sluice.populator.v1 and fill volumes, or compute the workers that do.
//
// Nobody waits for a plugin. The planner decides on a call, a Caller takes it and
// returns at once, and a bounded number of calls to each plugin is under way at
// any time. The answer is kept in memory, the claim that it is about is woken, and
// the planner finds the answer in its next observation. After a restart there are
// no answers: the planner then asks again, and every call can be repeated.
//
// A plugin is another program, perhaps of another vendor and with a fault. What
// it says is bounded in size before it is decoded, and cleaned before anybody
// sees it.
package plugin
