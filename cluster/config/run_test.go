package config

import (
	"os"
	"os/exec"
	"testing"
)

func TestProcess(t *testing.T) {
	self, err := ProcessOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !self.Runs() {
		t.Errorf("the test itself, %+v, does not run", self)
	}
	if again := (Process{PID: self.PID, Start: self.Start + "0"}); again.Runs() {
		t.Error("an earlier process of the same number is said to run")
	}
	if (Process{}).Runs() {
		t.Error("no process is said to run")
	}

	child := exec.CommandContext(t.Context(), "cat")
	in, err := child.StdinPipe() // it ends with this
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := ProcessOf(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if !p.Runs() {
		t.Errorf("the child %+v does not run", p)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if p.Runs() {
		t.Errorf("the child %+v still runs after its end", p)
	}
}
