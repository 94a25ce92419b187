// Package csi is the storage that Sluice's tests and demos run on: a CSI
// driver whose disks are sparse files behind loop devices, all on one machine,
// but which keeps to a geography as strictly as a cloud does. A disk lives in
// a zone or a region and has a generation, nodes that cannot reach it can
// neither attach nor stage it, and a modification may move it while it is in
// use. A wrong placement therefore really gets stuck.
//
// The driver is several processes that share one state directory: one
// controller, and one node service per (simulated) node. It holds no state in
// memory, so each process may be killed and started again at any time.
//
//	topology       where nodes and disks are, and who reaches whom. Pure
//	state          records, locks and image files in the state directory
//	fault          errors and delays that a test asks for
//	disk           loop devices, file systems, mounts, sparse copies
//	driver         the three CSI services
//	kubeletplugin  how a node service makes itself known to its kubelet
package csi
