// Package template turns a Populator's worker template and one source into a
// worker Pod. It is pure: no client, no clock, no I/O.
//
// A template is written once by whoever installs a Populator and rendered with
// sources that anybody with the right to create one may write, so a source is
// untrusted text. Three rules keep it text:
//
//   - ${CEL} stands in env values and file contents only. Everywhere else (image,
//     command, names, volumes, …) it is refused with the path of the field: a
//     shell line built from a source is code execution.
//   - What an expression yields reaches the container byte for byte. The kubelet
//     replaces $(VAR) in env values; every $ of a result is doubled so that it
//     does not, and a template in which a result could complete a $( of the
//     template's own is refused.
//   - Expressions are bounded: in cost, in size per value and in size per Pod.
//
// The language is CEL with the libraries that Kubernetes offers to CRD rules
// and admission policies, plus base64. Expressions see source, claim and
// volume; see Input. With the schema of the source kind at hand Compile finds
// unknown fields and wrong types, without it rendering does.
package template
