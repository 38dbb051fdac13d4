// kubeone: one multi-call binary with etcd, kube-apiserver, kube-scheduler and
// kube-controller-manager, for tests only. The component is chosen by argv[0]
// or by the first argument; each runs as its own process, because the
// components share process-wide registries (metrics, feature gates, klog flags).
package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
	_ "time/tzdata" // CronJob time zones

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/spf13/cobra"
)

func etcdCommand() *cobra.Command {
	var dir, client, peer string
	var quota int64
	c := &cobra.Command{Use: "etcd", RunE: func(*cobra.Command, []string) error {
		cfg := embed.NewConfig()
		cu, err := url.Parse(client)
		if err != nil {
			return err
		}
		pu, err := url.Parse(peer)
		if err != nil {
			return err
		}
		for _, u := range []*url.URL{cu, pu} {
			if h := u.Hostname(); h != "127.0.0.1" && h != "::1" {
				return fmt.Errorf("refusing to listen on %s: loopback only", h)
			}
		}
		cfg.Name, cfg.Dir = "default", dir
		cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*cu}, []url.URL{*cu}
		cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*pu}, []url.URL{*pu}
		cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
		cfg.UnsafeNoFsync = true // test data only
		cfg.QuotaBackendBytes = quota
		cfg.LogLevel = "warn"
		e, err := embed.StartEtcd(cfg)
		if err != nil {
			return err
		}
		defer e.Close()
		select {
		case <-e.Server.ReadyNotify():
		case <-time.After(60 * time.Second):
			return fmt.Errorf("etcd not ready after 60 s")
		}
		sig := make(chan os.Signal, 1)
		signal.Notify(sig, syscall.SIGINT, syscall.SIGTERM)
		select {
		case <-sig:
			return nil
		case err := <-e.Err():
			return err
		}
	}}
	c.Flags().StringVar(&dir, "data-dir", "", "data directory")
	c.Flags().StringVar(&client, "listen-client-urls", "http://127.0.0.1:2379", "client URL")
	c.Flags().StringVar(&peer, "listen-peer-urls", "http://127.0.0.1:2380", "peer URL")
	c.Flags().Int64Var(&quota, "quota-backend-bytes", 4<<30, "backend quota")
	return c
}

func main() {
	name := filepath.Base(os.Args[0])
	all := map[string]func() *cobra.Command{
		"etcd":                    etcdCommand,
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": kcm.NewControllerManagerCommand,
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}
	if _, ok := all[name]; !ok && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	mk, ok := all[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "usage: kubeone etcd|kube-apiserver|kube-controller-manager|kube-scheduler [flags]")
		os.Exit(2)
	}
	os.Exit(cli.Run(mk()))
}
