# Checks graphs with onnx.checker, weights of their own file and inferred shapes included.
import sys

import onnx

for path in sys.argv[1:]:
    onnx.checker.check_model(path, full_check=True)
    model = onnx.load(path)
    assert model.opset_import[0].version == 17, model.opset_import
    assert model.ir_version == 8, model.ir_version
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        assert dims[0].dim_param == "batch", (path, value.name, dims)
print("checked", len(sys.argv) - 1)
