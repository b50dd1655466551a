package models

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// PyTorchName returns the name of a parameter, table or buffer of a built-in model in PyTorch's
// state_dict. resnet50 has torchvision's names, and other models have the names of
// bench/peers/torch_models.py. Models not in this file only gain .weight after an embedding's name.
// Names of custom models stay as they are.
func PyTorchName(model, name string) string {
	switch model {
	case "resnet50":
		return torchvisionName(name)
	case "cifar-resnet20":
		return resnet20Name(name)
	case "cifar-vgg16":
		return vggName(name)
	case "lstm", "lstm-300m":
		if m := regexp.MustCompile(`^lstm(\d+)\.(.*)$`).FindStringSubmatch(name); m != nil {
			return fmt.Sprintf("lstm.%s_l%d", m[2], number(m[1])-1)
		}
		return strings.Replace(embeddingName(name), "output.", "out.", 1)
	case "ctr-dnn", "ctr-dnn-4096":
		if m := regexp.MustCompile(`^fc(\d+)\.(.*)$`).FindStringSubmatch(name); m != nil {
			return fmt.Sprintf("dense.%d.%s", 2*number(m[1])-2, m[2])
		}
		return strings.Replace(embeddingName(name), "out.", "dense.6.", 1)
	case "gpt", "gpt-mini":
		return embeddingName(name)
	}
	return name
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits) // always digits
	return n
}

func embeddingName(name string) string {
	switch name {
	case "embedding", "tokens", "places":
		return name + ".weight"
	}
	return name
}

var inBlock = regexp.MustCompile(`^block(\d+)\.(\d+)\.(conv(\d+)|shortcut)(\.norm)?\.(.*)$`)

func torchvisionName(name string) string {
	if rest, ok := strings.CutPrefix(name, "stem.norm."); ok {
		return "bn1." + rest
	}
	if rest, ok := strings.CutPrefix(name, "stem."); ok {
		return "conv1." + rest
	}
	m := inBlock.FindStringSubmatch(name)
	if m == nil {
		return name
	}
	layer := "conv" + m[4]
	switch norm := m[5] != ""; {
	case m[3] == "shortcut" && norm:
		layer = "downsample.1"
	case m[3] == "shortcut":
		layer = "downsample.0"
	case norm:
		layer = "bn" + m[4]
	}
	return fmt.Sprintf("layer%s.%d.%s.%s", m[1], number(m[2])-1, layer, m[6])
}

func resnet20Name(name string) string {
	if rest, ok := strings.CutPrefix(name, "stem.norm."); ok {
		return "norm." + rest
	}
	if rest, ok := strings.CutPrefix(name, "stem."); ok {
		return "conv." + rest
	}
	m := inBlock.FindStringSubmatch(name)
	if m == nil {
		return name
	}
	layer := "conv"
	if m[5] != "" {
		layer = "norm"
	}
	return fmt.Sprintf("blocks.%d.%s%s.%s", 3*(number(m[1])-1)+number(m[2])-1, layer, m[4], m[6])
}

// vggName replaces a layer's name by its index in one nn.Sequential: convolution, normalisation and
// ReLU, repeated, with a pool after each group.
func vggName(name string) string {
	m := regexp.MustCompile(`^(?:conv(\d+)\.(\d+)(\.norm)?|fc)\.(.*)$`).FindStringSubmatch(name)
	if m == nil {
		return name
	}
	if m[1] == "" {
		return "45." + m[4]
	}
	before := [...]int{0, 7, 14, 24, 34}[number(m[1])-1] + 3*(number(m[2])-1)
	if m[3] != "" {
		before++
	}
	return fmt.Sprintf("%d.%s", before, m[4])
}
